-- ARGV: bytes to answer at most, then rows.
-- Answers the live record of each row, until there are too many bytes; an unsound one as it is.
local now = millis()
local limit = tonumber(ARGV[1])
local answer, size = {}, 0
for at = 2, #ARGV do
  local record = redis.call('HGET', KEYS[1], ARGV[at])
  if record and is_sound(record) and not is_live(record, now) then
    if not is_trace(record) then
      forget(ARGV[at])
    end
    record = false
  end
  answer[at - 1] = record
  size = size + (record and #record or 0)
  if size >= limit then
    break
  end
end
return answer
