-- Read a session: the fields of its meta, its state (now, or at a snapshot or a version), and the entries that a read asks for.
-- Writes nothing.
-- ARGV: 1 now ('': by the server's clock); 2 a snapshot's id; 3 a version; 4 whether to list the snapshots;
--   5 which others ('': none; 'b': summaries that stand for what a trim hid; 's', 't', 'r': all visible ones of that class);
--   6, 7 others and ranges from this seq ('': the head) down to that one (0: also hidden ranges);
--   8 ranges until they hold so many messages ('': all; '-': no ranges); 9 whether entries that are no messages are left out;
--   10 whether the entries come along ('f': those of the front alone);
--   11, 12 for the front of a prompt: so many entries behind the floor, and so many of the latest summaries (nil: no front).
-- The answer begins with a text of lines: the status; how many snapshots follow; undo; forgotten; the facts of the session; the
-- state asked for; the others; the window, as window_text writes it; the fields of meta. Behind that text come:
--   ids and texts of the snapshots, unless they are too many for one answer (page.lua lists those);
--   the values of the window's entries in order, each behind "kind life" if all kinds are asked for. If one of them is not as it
--   must be, no entries come: the client then reads them by itself, and finds the damage;
--   of a front, its summaries, each as "kind life" and value.
-- If a part has not the length that meta says, the script ends with the damage.
local MOST_SNAPSHOTS = 500  -- in one answer: half a millisecond
local stored = call('HMGET', META, unpack(META_FIELDS))
if not stored[1] then
  if call('EXISTS', LOG, OTHERS, CHANGES, SNAPSHOTS, JUMPS) > 0 then return {'damaged'} end
  return {'no_session'}
end
local lines = sound(stored)
if not lines then return {'damaged'} end
local now, ends = tonumber(ARGV[1]), whole(stored[8])
if ends then
  if not now then
    local time = call('TIME')
    now = time[1] * 1000000 + time[2]
  end
  if ends <= now then return {'no_session'} end
end
LIFE = stored[1]
local parts, version = parts_in(stored[12]), tonumber(stored[2])
ANY_JUMPS, ANY_OTHERS = parts[3] > 0, parts[1] > 0
if ANY_OTHERS and call('ZCARD', OTHERS) ~= parts[1] then damaged('others') end
if parts[2] > 0 and call('HLEN', SNAPSHOTS) ~= parts[2] then damaged('snapshots') end
if ANY_JUMPS and call('ZCARD', JUMPS) ~= parts[3] then damaged('jumps') end
if call('XLEN', CHANGES) ~= version - parts[4] + 1 then damaged('changes') end
local texts = (parts[7] or parts[5] + parts[6] > 0) and sealed_texts()
local undo, forgotten = texts and texts.field('undo', parts[5]) or '', texts and texts.field('forgotten', parts[6]) or ''
local found_by = parts[7] and string.gsub(texts.field('facts', parts[7]), '\n', ',') or ''

local state, status = stored[4], 'found'
if ARGV[2] ~= '' then
  state = sealed_texts().snapshot_in(ARGV[2], parts[2])
  if not state then status = 'no_snapshot' end
elseif ARGV[3] == '0' then
  state = NOTHING
elseif ARGV[3] ~= '' then
  local asked = tonumber(ARGV[3])
  local row = call('XRANGE', CHANGES, ARGV[3] .. '-0', ARGV[3] .. '-0')[1]
  if row then
    local fields = row[2]
    local check, text = string.sub(fields[2], 1, 9), string.sub(fields[2], 10)
    fields[2] = text
    if check ~= change_check(asked, fields) or string.sub(fields[1], -#LIFE) ~= LIFE then damaged('changes') end
    state = string.match(text, '^%d+ %d+ %d+ (.*)$')
  elseif asked >= parts[4] and asked <= version then
    damaged('changes')
  else
    state = nil
  end
  for first, last in string.gmatch(forgotten, '(%d+)-(%d+)') do
    if tonumber(first) <= asked and asked <= tonumber(last) then state = nil end
  end
  if not state then status = 'no_version' end
end
if not state then return {status .. '\n0\n' .. undo .. '\n' .. forgotten .. '\n' .. found_by .. '\n\n\n\n' .. lines} end
local head, cleared, floor, messages, kept = unpacked(state)
if not head or head > tonumber(stored[3]) or floor > head or cleared > floor then damaged('state') end
-- A jump that was moved to another seq may be missed where the path begins, and too much would show: so count messages.
if ANY_JUMPS then
  local counted = path_functions().messages_behind(head, floor) + select(2, string.gsub(kept, '%d+', ''))
  if counted ~= messages then damaged('jumps') end
end

local listed = ARGV[4] ~= '' and parts[2] > 0 and parts[2] <= MOST_SNAPSHOTS and call('HGETALL', SNAPSHOTS) or {}

local others, window = {}, ''
local low, high = tonumber(ARGV[7]), math.min(tonumber(ARGV[6]) or head, head)
if ANY_OTHERS and ARGV[5] ~= '' and ARGV[5] ~= 'b' then
  other_functions().others_down(head, high, math.max(low, floor + 1), ARGV[5], others)
end
if ANY_OTHERS and (ARGV[5] == 'b' or ARGV[5] == 's') and cleared < floor then
  other_functions().others_down(head, math.min(high, floor), math.max(low, cleared + 1), 's', others)
end
local answer = {'', unpack(listed)}
if ARGV[8] ~= '-' then
  local bare = ARGV[9] ~= ''
  local found = window_down(head, high, low == 0 and 1 or math.max(low, floor + 1), tonumber(ARGV[8]), bare)
  complete(found, low > 0 and kept or '', high, low)
  local front = {}
  if ARGV[11] and found.cut then
    -- Before a window that a limit cuts: the kept messages, and the messages among the first entries behind the floor. Where the
    -- path leaves its lowest range, that and the next entry are enough.
    local first, last, most, next_range, seqs = floor + 1, head, tonumber(ARGV[11]), nil, {}
    if ANY_JUMPS then
      local path = path_functions()
      local top = path.jump_at(head)
      if top.depth > 0 and top.seq > first then
        local past, lowest = path.last_past(top, floor)
        first, last, next_range = math.max(lowest.seq, first), past.after, past.seq
      end
    end
    for seq in string.gmatch(kept, '%d+') do seqs[#seqs + 1] = tonumber(seq) end
    for seq = first, math.min(last, first + most - 1) do seqs[#seqs + 1] = seq end
    if next_range and last - first + 1 < most then seqs[#seqs + 1] = next_range end
    for i = #seqs, 1, -1 do
      local seq = seqs[i]
      if seq < found.start and seq > cleared and messages_in(seq, seq) == 1 then
        if front[#front - 1] == seq + 1 then
          front[#front - 1] = seq
        else
          front[#front + 1], front[#front + 2] = seq, seq
        end
      end
    end
    for i = 1, #front do found.ranges[#found.ranges + 1] = front[i] end
  end
  if ARGV[10] ~= '' and found.rest == 0 then
    -- The entries of the window, the first one first; none if one is missing, or is not of the kind that the window says.
    local ranges, message, at = ARGV[10] == 'f' and front or found.ranges, 'message ' .. LIFE, #answer
    for i = #ranges, 1, -2 do
      local first, last = ranges[i - 1], ranges[i]
      local rows = call('XRANGE', LOG, string.format('%d-0', first), string.format('%d-0', last))
      local sound_rows = #rows == last - first + 1
      for j = 1, #rows do
        local fields = rows[j][2]
        sound_rows = sound_rows and (not bare or fields[1] == message)
        if not bare then
          at = at + 1
          answer[at] = fields[1]
        end
        at = at + 1
        answer[at] = fields[2]
      end
      if not sound_rows then
        for j = #answer, #listed + 2, -1 do answer[j] = nil end
        break
      end
    end
  end
  window = window_text(found)
end
if ARGV[12] and ANY_OTHERS and cleared < floor then
  other_functions().others_down(head, head, cleared + 1, 's', others, tonumber(ARGV[12]))
  for i = #others, 1, -1 do
    local name = string.format('%d-0', others[i])
    local row = call('XRANGE', LOG, name, name)[1]
    if not row then damaged('others') end
    answer[#answer + 1], answer[#answer + 2] = row[2][1], row[2][2]
  end
end
answer[1] = status .. '\n' .. #listed .. '\n' .. undo .. '\n' .. forgotten .. '\n' .. found_by .. '\n' .. state .. '\n'
  .. table.concat(others, ',') .. '\n' .. window .. '\n' .. lines
return answer
