-- ARGV: row.
-- Answers milliseconds left, -1 for a permanent record, -2 for none, -3 for an unsound one.
local now = millis()
local record = redis.call('HGET', KEYS[1], ARGV[1])
if not record then
  return -2
elseif not is_sound(record) then
  return -3
elseif not is_live(record, now) then
  if not is_trace(record) then
    forget(ARGV[1])
  end
  return -2
end
local expiry = expiry_of(record)
return expiry == NEVER and -1 or expiry - now
