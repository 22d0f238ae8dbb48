{{- define "mirror.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "mirror.podLabels" -}}
{{ include "mirror.labels" . }}
{{- with .Values.podLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Every namespace has an account `default`, which is not ours to make. */}}
{{- define "mirror.serviceAccount" -}}
{{- if .Values.serviceAccount.name -}}
{{ .Values.serviceAccount.name }}
{{- else if eq .Release.Name "default" -}}
default-{{ .Chart.Name }}
{{- else -}}
{{ .Release.Name }}
{{- end }}
{{- end }}

{{/* Not empty on OpenShift. */}}
{{- define "mirror.isOpenShift" -}}
{{- if kindIs "bool" .Values.openshift -}}
{{ ternary "true" "" .Values.openshift }}
{{- else if .Capabilities.APIVersions.Has "security.openshift.io/v1" -}}
true
{{- end }}
{{- end }}

{{/* Of the network policy: every pod of these namespaces. */}}
{{- define "mirror.namespaces" -}}
- namespaceSelector:
    matchExpressions:
      - key: kubernetes.io/metadata.name
        operator: In
        values: {{ toYaml . | nindent 10 }}
{{- end }}

{{- define "mirror.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "mirror.podSpec" -}}
serviceAccountName: {{ include "mirror.serviceAccount" . }}
automountServiceAccountToken: false
# The names of other services must not look like settings.
enableServiceLinks: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
{{- if .Values.podSecurityContext }}
securityContext: {{ toYaml .Values.podSecurityContext | nindent 2 }}
{{- else }}
securityContext:
  runAsNonRoot: true
  {{- if not (include "mirror.isOpenShift" .) }}
  runAsUser: 1000
  runAsGroup: 1000
  fsGroup: 1000
  {{- end }}
  seccompProfile: { type: RuntimeDefault }
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Given the root, and `settings`: the name of the ConfigMap. */}}
{{- define "mirror.containerOf" -}}
{{- $settings := .settings -}}
{{- with .root -}}
image: {{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: { drop: [ALL] }
envFrom:
  - configMapRef: { name: {{ $settings }} }
{{- with .Values.objectStoreKeys.secretName }}
  - secretRef: { name: {{ . }} }
{{- end }}
{{- with .Values.extraEnvFrom }}
{{ toYaml . | indent 2 }}
{{- end }}
env:
  # A user without an entry in /etc/passwd has no home otherwise.
  - { name: HOME, value: /tmp }
{{- if or .Values.privateCA.secretName .Values.privateCA.configMapName }}
  - name: NODE_EXTRA_CA_CERTS
    value: /run/ledger-mirror-ca/{{ .Values.privateCA.key }}
{{- end }}
{{- range .Values.secretKeys }}
  - name: {{ . | upper | replace "-" "_" }}_FILE
    value: /run/secrets/ledger-mirror/{{ . }}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . | indent 2 }}
{{- end }}
volumeMounts:
  - { name: secrets, mountPath: /run/secrets/ledger-mirror, readOnly: true }
  - { name: data, mountPath: /data }
  - { name: tmp, mountPath: /tmp }
{{- if or .Values.privateCA.secretName .Values.privateCA.configMapName }}
  - { name: private-ca, mountPath: /run/ledger-mirror-ca, readOnly: true }
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . | indent 2 }}
{{- end }}
{{- end }}
{{- end }}

{{- define "mirror.container" -}}
{{ include "mirror.containerOf" (dict "root" . "settings" .Release.Name) }}
{{- end }}

{{- define "mirror.volumes" -}}
- name: secrets
  secret:
    secretName: {{ .Values.secretName }}
    defaultMode: 0440
- name: tmp
  emptyDir: { sizeLimit: 1Gi }
{{- if .Values.privateCA.secretName }}
- name: private-ca
  secret: { secretName: {{ .Values.privateCA.secretName }} }
{{- else if .Values.privateCA.configMapName }}
- name: private-ca
  configMap: { name: {{ .Values.privateCA.configMapName }} }
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Under a loopback name: requests for others have to be allowed by API_HOSTS. */}}
{{- define "mirror.probe" -}}
httpGet:
  path: {{ .path }}
  port: {{ .port }}
  httpHeaders:
    - { name: Host, value: localhost }
timeoutSeconds: 5
{{- end }}

{{- define "mirror.settings" -}}
{{- if not .Values.settings.SOURCE_URL }}{{ fail "settings.SOURCE_URL: give the URL of the query service to mirror" }}{{ end }}
{{- if not .Values.settings.OBJECT_STORE_URL }}{{ fail "settings.OBJECT_STORE_URL: give an S3 store; pods share no disk" }}{{ end }}
{{- range $name, $value := .Values.settings }}
{{- if kindIs "float64" $value }}{{ fail (printf "settings.%s: put the number in quotes" $name) }}{{ end }}
{{ $name }}: {{ $value | quote }}
{{- end }}
{{- if and .Values.ingress.enabled (not .Values.settings.API_HOSTS) }}
API_HOSTS: {{ printf "%s,%s,%s.%s.svc" .Values.ingress.host .Release.Name .Release.Name .Release.Namespace | quote }}
{{- else if not .Values.settings.API_HOSTS }}
API_HOSTS: {{ printf "%s,%s.%s.svc" .Release.Name .Release.Name .Release.Namespace | quote }}
{{- end }}
WORKER_HEALTH_PORT: '8081'
{{- end }}
