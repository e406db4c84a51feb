-- Read more ranges of a path, if an answer of session_state.lua had no room for all. Writes nothing.
-- ARGV: the life, the head to go on from, down to which seq, until so many messages stand in them ('': all).
LIFE = ARGV[1]
if call('HGET', META, 'life') ~= LIFE then return {'', 0} end
local ranges, rest = ranges_down(tonumber(ARGV[2]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]))
return {table.concat(ranges, ','), rest}
