#!lua
-- Shows the slots of an institution as of a write, unless a later write is shown.
-- KEYS: slots, lag, then the token of each slot.
-- ARGV: version, life of the slots in ms, time of the last delivery or '', entries of lag, then for
-- each slot: thread, what is told of it, life of its token in ms, and the fields of the token.
local shown = tonumber(redis.call('HGET', KEYS[1], 'version') or '-1')
if shown >= tonumber(ARGV[1]) then
  return 0
end
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'version', ARGV[1])
local at = 5
for i = 3, #KEYS do
  redis.call('HSET', KEYS[1], ARGV[at], ARGV[at + 1])
  local life = tonumber(ARGV[at + 2])
  if life > 0 then
    redis.call('HSET', KEYS[i], 'ispb', ARGV[at + 3], 'thread_slot', ARGV[at], 'cursor_seq',
      ARGV[at + 4], 'expiry', ARGV[at + 5], 'signature', ARGV[at + 6])
    redis.call('PEXPIRE', KEYS[i], life)
  end
  at = at + 7
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
if ARGV[3] ~= '' then
  redis.call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[4], '*', 'delivered_at', ARGV[3], 'version', ARGV[1])
  redis.call('PEXPIRE', KEYS[2], 86400000)
end
return 1
