# The worker, the read API and every command in one image; the command says which. The sources run as they are.
# NODE_IMAGE can name a mirror of yours, or a newer one; it has to be Debian with Node 24.12 or later.
ARG NODE_IMAGE=node:24-bookworm-slim@sha256:0e0ff40c39bc087845bfb27465a0df4ea419520094bc35842ff83dd8cbe6f9b6

FROM ${NODE_IMAGE} AS packages
WORKDIR /app
COPY package.json package-lock.json .npmrc ./
# The image has its Node already; TypeScript is an optional peer of a package and never runs.
RUN npm ci --omit=dev --ignore-scripts \
 && rm -rf node_modules/node-linux-* node_modules/typescript node_modules/@typescript

FROM ${NODE_IMAGE}
# An init hands signals on from the first instant and reaps what an embedded Postgres leaves.
RUN apt-get update \
 && apt-get install -y --no-install-recommends tini \
 && rm -rf /var/lib/apt/lists/* /usr/local/lib/node_modules/npm /usr/local/bin/npm /usr/local/bin/npx
WORKDIR /app
COPY --from=packages /app/node_modules ./node_modules
COPY LICENSE package.json ./
COPY bin ./bin
COPY migrations ./migrations
COPY jobs ./jobs
COPY src ./src
COPY deploy/compose/make-bucket.mjs ./deploy/compose/

ENV NODE_ENV=production
# Compiled here, read there: the file system may be read-only.
ENV NODE_COMPILE_CACHE=/app/.compiled
# Spool files, and the embedded parts where nothing else is configured.
ENV DATA_DIR=/data
# A published port reaches nothing else; without API_TOKEN the process refuses to start.
ENV API_HOST=0.0.0.0
# One start of the embedded Postgres: its links are made, and what was loaded is compiled.
RUN ln -s /app/bin/ledger-mirror.js /usr/local/bin/ledger-mirror \
 && DATA_DIR=/var/tmp/warm ledger-mirror doctor \
 && rm -rf /var/tmp/warm \
 && chmod -R a+rX /app/.compiled \
 && mkdir /data /credentials && chown 1000:1000 /data /credentials
VOLUME /data

ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="ledger-mirror" \
      org.opencontainers.image.description="Keeps a provably whole copy of a ledger network's query service, and feeds analytics from it" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.licenses="Apache-2.0"

# By number: Kubernetes cannot tell that a name is not root.
USER 1000:1000
EXPOSE 8080 8081
ENTRYPOINT ["/usr/bin/tini", "--", "ledger-mirror"]
CMD ["up"]
