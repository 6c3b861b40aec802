-- ARGV: rows.
-- Answers the header of each, live or not, with what a trace says of the deleted record.
local answer = {}
for at, row in ipairs(ARGV) do
  local record = redis.call('HGET', KEYS[1], row)
  answer[at] = record and string.sub(record, 1, HEADER + 8)
end
return answer
