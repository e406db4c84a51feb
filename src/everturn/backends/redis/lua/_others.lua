-- Shared: entries that are no messages. They are listed by seq: "s12" for a summary, "t" for a tool call, "r" for any other
-- record. The functions are made by a call, as those of _sealed.lua.
local function other_functions()
  local texts = sealed_texts()

  local function put_other(seq, kind)
    local class = kind == 'summary' and 's' or kind == 'tool_call' and 't' or 'r'
    call('ZADD', OTHERS, seq, texts.sealed('other', class .. seq))
  end

  -- The seq of an entry that is no message, and its class, from its member and its score in the sorted set.
  local function other_in(kept, score)
    local class, seq = string.match(texts.opened('others', 'other', kept), '^(%a)(%d+)$')
    if seq ~= score then damaged('others') end
    return tonumber(seq), class
  end

  -- The seqs of one class of others on the path to `head`, from `last` down to `low`, behind those in `found`: at most `most`
  -- (nil: all). With a bound they are looked through a few at a time.
  local function others_down(head, last, low, class, found, most)
    local path, jump, high, listed
    repeat
      listed = most and call('ZREVRANGEBYSCORE', OTHERS, last, low, 'WITHSCORES', 'LIMIT', 0, 64)
        or call('ZREVRANGEBYSCORE', OTHERS, last, low, 'WITHSCORES')
      for i = 1, #listed, 2 do
        local seq, letter = other_in(listed[i], listed[i + 1])
        if letter == class then
          if not jump then
            path = path_functions()
            jump, high = path.jump_at(head), head
          end
          jump, high = path.range_at(jump, high, seq)
          if jump.seq <= seq and seq <= high then found[#found + 1] = seq end
          if #found == most then return found end
        end
        last = seq - 1
      end
    until not most or #listed < 128
    return found
  end

  return {put_other = put_other, other_in = other_in, others_down = others_down}
end
