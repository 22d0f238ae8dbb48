{# A table of the lake, at the one moment that this run of dbt reads: tables are joined as they were together. #}
{% macro lake(table) %}
  {%- do source('lake', table) -%}
  {%- if execute -%}
    {%- set versions = run_query("select json_extract_string(tables, '$." ~ table ~ ".version') from " ~ target.schema ~ ".lake_moment") -%}
    delta_scan('{{ env_var('MIRROR_LAKE', '') }}/{{ table }}', version = {{ versions.columns[0].values()[0] }})
  {%- endif -%}
{% endmacro %}

{# Before anything is built: which moment is the newest. #}
{% macro keep_moment() %}
  {%- if target.type == 'duckdb' -%}
    create or replace table {{ target.schema }}.lake_moment as {{ newest_moment() }}
  {%- endif -%}
{% endmacro %}

{% macro newest_moment() %}
  select moment, "builtAt" as built_at, tables
  from read_json('{{ env_var('MIRROR_LAKE', '') }}/moments/*.json', columns = {moment: 'BIGINT', "builtAt": 'TIMESTAMPTZ', tables: 'JSON'})
  order by moment desc limit 1
{% endmacro %}
