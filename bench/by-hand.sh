#!/bin/sh
# Starts the same sandbox with a shell script: initializes and starts a primary and a
# replica, sets up replication, waits for a row. Prints the milliseconds from the
# start to that row, and removes everything.
#
#   bench/by-hand.sh ROOT        ROOT contains usr/sbin/mariadbd of an unpacked server
set -eu
root=$1
work=$(mktemp -d /var/tmp/by-hand.XXXXXX)
chmod 0755 "$work"
user=
if [ "$(id -u)" = 0 ]; then user='--user=nobody'; chown nobody "$work"; fi
for folder in "$root"/usr/lib/*-linux-gnu; do [ -d "$folder" ] && LD_LIBRARY_PATH=$folder; done
export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}
paths="--no-defaults --basedir=$root/usr --lc-messages-dir=$root/usr/share/mysql --plugin-dir=$root/usr/lib/mysql/plugin --character-sets-dir=$root/usr/share/mysql/charsets"
stop() { kill -9 $pids 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$work"; }
pids=
trap stop EXIT

began=$(date +%s%N)
for node in 1 2; do
    mkdir "$work/$node"
    if [ -n "$user" ]; then chown nobody "$work/$node"; fi
    # shellcheck disable=SC2086
    { printf 'CREATE DATABASE IF NOT EXISTS mysql;\nUSE mysql;\nSET @auth_root_socket=NULL;\n'
      for part in system_tables performance_tables system_tables_data; do cat "$root/usr/share/mysql/mysql_$part.sql"; done
      cat "$root/usr/share/mysql/maria_add_gis_sp_bootstrap.sql" "$root/usr/share/mysql/mysql_sys_schema.sql"
    } | "$root/usr/sbin/mariadbd" $paths $user --bootstrap --datadir="$work/$node" --max-allowed-packet=8M >"$work/boot$node" 2>&1
    port=$((23300 + node))
    # shellcheck disable=SC2086
    "$root/usr/sbin/mariadbd" $paths $user --datadir="$work/$node" --port=$port --bind-address=127.0.0.1 --socket="$work/$node.sock" \
        --server-id=$node --log-bin=binlog --binlog-format=ROW --log-slave-updates >"$work/log$node" 2>&1 &
    pids="$pids $!"
done
client() { "$root/usr/bin/mariadb" --no-defaults -u root -S "$work/$1.sock" -BNe "$2" 2>/dev/null; }
for node in 1 2; do tries=0; until client $node 'SELECT 1' >/dev/null; do tries=$((tries + 1)); [ $tries -lt 600 ]; sleep 0.05; done; done
client 1 "SET sql_log_bin=0; CREATE USER repl@'127.0.0.1' IDENTIFIED BY 'x'; GRANT REPLICATION SLAVE ON *.* TO repl@'127.0.0.1'"
client 2 "CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT=23301, MASTER_USER='repl', MASTER_PASSWORD='x', MASTER_USE_GTID=slave_pos; START SLAVE"
client 1 "CREATE DATABASE t; CREATE TABLE t.sentinel (id INT); INSERT INTO t.sentinel VALUES (1)"
tries=0
until [ "$(client 2 'SELECT id FROM t.sentinel')" = 1 ]; do tries=$((tries + 1)); [ $tries -lt 1500 ]; sleep 0.02; done
echo $((($(date +%s%N) - began) / 1000000))
