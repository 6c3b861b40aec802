next=/api/v1/out/$ISPB/stream/start tell='%{http_code}/%{exitcode} %header{pi-pull-next} %header{pi-resourceid}'
while :; do
    set -- $(curl -sS -o message -w "$tell" -H "Authorization: Bearer $KEY" "$URL$next")
    case $1 in
    200/0) mv message "$(echo "$3" | tr / _).xml" && next=$2 ;; # kept first; asking for more acknowledges it
    204/0) next=$2 ;;                                           # nothing came: ask again
    401/0) next=/api/v1/out/$ISPB/stream/start && sleep 1 ;;    # the token is too old: start again
    *) sleep 1 ;;                                               # no whole answer: the same again
    esac
done
