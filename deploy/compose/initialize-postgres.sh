#!/bin/sh
# Run once, by the image, where the volume is empty: the mirror's own role and database, and a login for analysts.
# A password that changes later is changed in the server: alter role mirror password '…'.
set -eu

psql --set=ON_ERROR_STOP=1 --username="$POSTGRES_USER" --dbname=postgres \
  --set=password="$POSTGRES_PASSWORD" --set=reader="${READER_PASSWORD:-}" <<'SQL'
create role mirror login password :'password';
create database mirror owner mirror;
-- May read the mirror's views and nothing else: the migrations grant it that.
create role mirror_reader nologin;
select :'reader' <> '' as has_reader \gset
\if :has_reader
create role analyst login password :'reader' in role mirror_reader;
\endif
SQL
