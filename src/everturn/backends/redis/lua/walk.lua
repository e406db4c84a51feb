-- Walk on along a path, if an answer of session_state.lua had no room for all of its window. Writes nothing.
-- ARGV: the life; the head to go on from; down to which seq; until so many messages ('': all); whether entries that are no
-- messages are left out; the kept system messages, and between which seqs they are wanted.
LIFE = ARGV[1]
if call('HGET', META, 'life') ~= LIFE then return '0 0 0 0 ' end
local head = tonumber(ARGV[2])
local window = window_down(head, head, tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5] ~= '')
complete(window, ARGV[6], tonumber(ARGV[7]), tonumber(ARGV[8]))
return window_text(window)
