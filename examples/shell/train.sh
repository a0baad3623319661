#!/bin/sh
# One call trains from epoch FREEZETHAW_FROM to FREEZETHAW_TO. All it needs to go on is one number in one file.
set -eu
value=4
[ -z "$FREEZETHAW_LOAD" ] || value=$(cat "$FREEZETHAW_LOAD/value")
rate=$(sed 's/.*"rate": *\([-+.0-9e]*\).*/\1/' "$FREEZETHAW_CONFIG")
decay=$(sed 's/.*"decay": *\([-+.0-9e]*\).*/\1/' "$FREEZETHAW_CONFIG")

epoch=$FREEZETHAW_FROM
while [ "$epoch" -lt "$FREEZETHAW_TO" ]; do
  epoch=$((epoch + 1))
  value=$(awk -v x="$value" -v r="$rate" -v d="$decay" -v e="$epoch" \
    'BEGIN { printf "%.17g", x - r * d ^ (e - 1) * (2 * x - 1) }')
  awk -v x="$value" -v e="$epoch" 'BEGIN { printf "{\"epoch\": %d, \"loss\": %.17g}\n", e, (2 * x - 1) ^ 2 }'
done
echo "$value" > "$FREEZETHAW_SAVE/value"
