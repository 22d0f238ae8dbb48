{# The sum of amounts to the last digit, as text: DuckDB's DECIMAL has 38 digits and overflows, Postgres' numeric does not. #}
{% macro exact_sum(amount, amount_text) %}{{ return(adapter.dispatch('exact_sum', 'ledger_mirror')(amount, amount_text)) }}{% endmacro %}

{% macro default__exact_sum(amount, amount_text) -%}
  cast(sum(cast({{ amount_text }} as numeric)) as text)
{%- endmacro %}

{# The rare amounts that DECIMAL cannot add up safely are added as BIGNUM, the others at full speed. #}
{% macro duckdb__exact_sum(amount, amount_text) -%}
  {%- set safe = 'between -9999999999999999999999999999 and 9999999999999999999999999999' -%}
  case when count({{ amount_text }}) > 0 then cast(
    cast(cast(coalesce(sum(case when {{ amount }} {{ safe }} then {{ amount }} end), 0) as varchar) as bignum)
    + coalesce(sum(case when {{ amount }} {{ safe }} then null else cast({{ amount_text }} as bignum) end), cast('0' as bignum))
    as varchar) end
{%- endmacro %}

{# As an exact number where it has at most 38 digits, NULL where it has more. #}
{% macro fitting(amount_text) -%}
  case when length({{ amount_text }}) <= 38 then cast({{ amount_text }} as numeric(38, 0)) end
{%- endmacro %}
