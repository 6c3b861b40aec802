-- ARGV: from and to as ZRANGEBYLEX has them, rows and bytes to answer at most, bytes of the partition.
-- Answers the row to go on with, if any, then each live row and its record; an unsound one as it is.
local now = millis()
local limit, bytes, partition = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local rows = redis.call('ZRANGEBYLEX', KEYS[2], ARGV[1], ARGV[2], 'LIMIT', 0, limit + 1)
local answer, size = {false}, 0
for at, row in ipairs(rows) do
  if at > limit or size >= bytes then
    answer[1] = row
    break
  end
  local record = redis.call('HGET', KEYS[1], row)
  if not record or is_sound(record) and not is_live(record, now) then
    forget(row)
  else
    answer[#answer + 1] = row
    answer[#answer + 1] = record
    size = size + partition + #row + #record - HEADER
  end
end
return answer
