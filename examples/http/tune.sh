#!/bin/sh
# A whole search in a shell script: ask over HTTP, train, tell. Needs curl and jq.
#   freezethaw dashboard --new tuning.db        # prints a link with a token
#   FREEZETHAW_URL=http://127.0.0.1:8750 FREEZETHAW_TOKEN=... ./tune.sh
set -eu
study="${1:-shell}"
api="$FREEZETHAW_URL/api/studies"

call() {  # METHOD PATH [JSON]
  curl --silent --fail-with-body --max-time 120 -X "$1" "$2" \
    -H "Authorization: Bearer $FREEZETHAW_TOKEN" -H "Content-Type: application/json" ${3:+-d "$3"}
}

call POST "$api" "{\"name\": \"$study\", \"max_epochs\": 8, \"budget\": ${BUDGET:-12}, \"space\": {
  \"rate\": {\"type\": \"float\", \"low\": 0.001, \"high\": 1.0, \"log\": true}}}" >/dev/null

while :; do
  answer=$(call POST "$api/$study/ask")
  if [ "$(echo "$answer" | jq '.decision == null')" = true ]; then
    echo "$answer" | jq -e '.wait' >/dev/null && { sleep 1; continue; }
    echo "$answer" | jq -r '.finished'
    break
  fi
  # a training that keeps its state in a file of its run would load it here; this one is a formula
  losses=$(echo "$answer" | jq -c '.decision as $d | [range($d.from_epoch + 1; $d.to_epoch + 1) |
    ((($d.config.rate | log10) + 1.5) | . * .) + 1 / .]')
  told=$(echo "$answer" | jq -c --argjson losses "$losses" '{decision: .decision.number, token: .decision.token, losses: $losses}')
  call POST "$api/$study/tell" "$told" >/dev/null
done
call GET "$api/$study/best" | jq -c '{loss, config}'
