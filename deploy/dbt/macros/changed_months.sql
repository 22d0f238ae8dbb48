{# Months whose rows are others than those that this incremental model was built from. #}
{% macro months_to_build() %}
  select source.month, source.version
  from {{ ref('stg_months') }} as source
  {% if is_incremental() %}
  left join (select distinct month, month_version from {{ this }}) as built
    on built.month = source.month and built.month_version = source.version
  where built.month is null
  {% endif %}
{% endmacro %}

{# Before the new rows of a changed month come, its old ones go: also where none come. #}
{% macro delete_changed_months() %}
  {% if is_incremental() %}
  delete from {{ this }} where (month, month_version) not in (select month, version from {{ ref('stg_months') }})
  {% else %}
  select 1
  {% endif %}
{% endmacro %}
