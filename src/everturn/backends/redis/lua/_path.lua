-- Shared: the path, which is the entries of the log that lead to a head. An entry follows the one before it, unless a jump
-- says otherwise.
-- A jump is "seq after skip depth messages": the entry `seq` follows the entry `after`; `skip` is a jump further down the
-- same path (0: none), `depth` how many jumps there are on it up to this one, and `messages` how many messages before it.
-- Skips are those of Myers' skew-binary lists: passing n jumps takes log n steps, adding one takes O(1).
-- All functions but the first are made by a call, as those of _sealed.lua.
local function messages_in(first, last)
  return first > last and 0 or last - first + 1 - (ANY_OTHERS and call('ZCOUNT', OTHERS, first, last) or 0)
end

local function path_functions()
  local START = {seq = 1, after = 0, skip = 0, depth = 0, messages = 0}  -- of the range that no jump leads to

  -- The five numbers of a jump, as texts, once they are checked. A path may have thousands of jumps: those who walk along it
  -- need three of the numbers, and no table.
  local function numbers_in(kept, score)
    local check, text, seq, after, skip, depth, messages = string.match(kept, '^(%x+) ((%d+) (%d+) (%d+) (%d+) (%d+))$')
    if seq ~= score or check ~= digest(LIFE .. ' jump ' .. text) then damaged('jumps') end
    return seq, after, depth, skip, messages
  end

  local function jump_in(kept, score)
    local seq, after, depth, skip, messages = numbers_in(kept, score)
    return {seq = tonumber(seq), after = tonumber(after), skip = tonumber(skip), depth = tonumber(depth),
            messages = tonumber(messages)}
  end

  -- Return the jump that leads to the range of the log that holds `seq`.
  local function jump_at(seq)
    if not ANY_JUMPS then return START end
    local found = call('ZREVRANGEBYSCORE', JUMPS, seq, '-inf', 'WITHSCORES', 'LIMIT', 0, 1)
    return found[1] and jump_in(found[1], found[2]) or START
  end

  -- Return the jump before this one on its path. Depths show whether one is missing.
  local function below(jump)
    local found = jump_at(jump.after)
    if found.depth ~= jump.depth - 1 then damaged('jumps') end
    return found
  end

  local function skipped(jump)
    if jump.skip == 0 then return START end
    local found = jump_at(jump.skip)
    if found.seq ~= jump.skip then damaged('jumps') end
    return found
  end

  -- Of the jumps on the path down from this one, the last that is past `seq`; and the one below it, which is not.
  local function last_past(jump, seq)
    while true do
      if jump.skip > seq then
        jump = skipped(jump)
      else
        local next_jump = below(jump)
        if next_jump.depth == 0 or next_jump.seq <= seq then return jump, next_jump end
        jump = next_jump
      end
    end
  end

  -- The range of the path that holds `seq`, or else the nearest below: its jump, and its last entry on the path, which is
  -- `last` for the range of the jump itself.
  local function range_at(jump, last, seq)
    if jump.depth == 0 or jump.seq <= seq then return jump, last end
    local past, found = last_past(jump, seq)
    return found, past.after
  end

  local function on_path(head, seq)
    if seq == head then return true end
    local jump, last = range_at(jump_at(head), head, seq)
    return jump.seq <= seq and seq <= last
  end

  -- Count the messages on the path to `head` after `low`. All of them exist: visible entries are not reclaimed.
  local function messages_behind(head, low)
    local top = jump_at(head)
    if top.depth == 0 or top.seq <= low then return messages_in(math.max(top.seq, low + 1), head) end
    if low == 0 then return messages_in(top.seq, head) + top.messages end  -- no need to walk down to the start
    local past, found = last_past(top, low)
    return messages_in(top.seq, head) + top.messages - past.messages
      + messages_in(math.max(found.seq, low + 1), past.after)
  end

  local function put_jump(seq, after)
    local before = jump_at(after)
    local skip = skipped(before)
    local far = before.depth - skip.depth == skip.depth - skipped(skip).depth and skip.skip
      or before.depth > 0 and before.seq or 0
    local messages = before.messages + messages_in(before.seq, after)
    local text = seq .. ' ' .. after .. ' ' .. far .. ' ' .. (before.depth + 1) .. ' ' .. messages
    call('ZADD', JUMPS, seq, digest(LIFE .. ' jump ' .. text) .. ' ' .. text)
  end

  return {START = START, numbers_in = numbers_in, jump_at = jump_at, range_at = range_at, on_path = on_path,
          last_past = last_past, messages_behind = messages_behind, put_jump = put_jump}
end
