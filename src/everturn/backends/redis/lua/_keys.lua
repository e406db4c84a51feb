-- The callers' keys that a session remembers. Field `k<key>` of meta: for each use "version first count content", with
-- 16 bytes of content; field `t<seq>`: the key of the turn whose last entry that is. The use of a turn is forgotten once its
-- change is forgotten and its last entry is reclaimed. The use of a change without a turn (a clear, a rollback, a trim) is kept:
-- a second one would take away later turns. The use of a snapshot (its `first` is 1) is forgotten with its change: its answer is
-- too long to be kept here, and a second snapshot harms nobody.
-- The functions are made by a call, as those of _sealed.lua.
local function key_functions()
  local USE = '(%d+) (%d+) (%d+) (................)'

  -- Return the uses of a key, oldest first.
  local function uses_of(key)
    local uses = {}
    for version, first, count, content in string.gmatch(call('HGET', META, 'k' .. key) or '', USE) do
      uses[#uses + 1] = {version = version, first = tonumber(first), count = tonumber(count), content = content}
    end
    return uses
  end

  local function has_entries(first, count)
    return count > 0 and #call('XRANGE', LOG, first .. '-0', (first + count - 1) .. '-0', 'COUNT', 1) > 0
  end

  -- Forget the uses of which neither a change nor an entry is left. Changes up to version `last` are about to go.
  local function forget_uses(key, last)
    local left, gone = {}, false
    for _, use in ipairs(uses_of(key)) do
      local remembered = tonumber(use.version) > last
        and #call('XRANGE', CHANGES, use.version .. '-0', use.version .. '-0') > 0
      if remembered or use.count + use.first == 0 or has_entries(use.first, use.count) then
        left[#left + 1] = use.version .. ' ' .. use.first .. ' ' .. use.count .. ' ' .. use.content
      else
        gone = true
        if use.count > 0 then call('HDEL', META, 't' .. (use.first + use.count - 1)) end
      end
    end
    if #left == 0 then call('HDEL', META, 'k' .. key) elseif gone then call('HSET', META, 'k' .. key, table.concat(left)) end
  end

  -- Call it for each entry that was reclaimed.
  local function forget_key_of(seq)
    local key = call('HGET', META, 't' .. seq)
    if key then forget_uses(key, 0) end
  end

  return {uses_of = uses_of, forget_uses = forget_uses, forget_key_of = forget_key_of}
end
