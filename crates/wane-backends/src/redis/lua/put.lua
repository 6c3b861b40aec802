-- ARGV: partition, then for each row: row, operation, life, fence, value.
-- Answers each row in turn.
local now = millis()
local answer = {}
for at = 2, #ARGV, 5 do
  local row, fence = ARGV[at], ARGV[at + 3]
  local before = redis.call('HGET', KEYS[1], row)
  if before and not is_sound(before) then
    answer[#answer + 1] = UNSOUND
  else
    local live = before and is_live(before, now) and before
    local stamped = stamp(fence, live)
    if stamped then
      local expiry = expiry_for(ARGV[at + 2], now, live)
      answer[#answer + 1] = store(row, before, ARGV[at + 1], expiry, stamped, ARGV[at + 4])
    else
      answer[#answer + 1] = refused(live)
    end
  end
end
return answer
