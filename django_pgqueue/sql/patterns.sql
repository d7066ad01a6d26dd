-- Whether a pattern selects a name: by words, as log/names.py says. What is no
-- pattern selects nothing, since no name has an empty word, and raises nothing.
--
-- Called by log/backfill.py, log/retain_backfills.py and pgqueue_patterns_of().
--
-- Locks: none.
CREATE OR REPLACE FUNCTION pgqueue_pattern_selects(pattern text, name text)
RETURNS boolean LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    wanted text[] := string_to_array(pattern, '.');
    words text[] := string_to_array(name, '.');
    length integer := cardinality(wanted);
BEGIN
    IF length = 1 THEN
        RETURN pattern IN ('*', words[1]);
    END IF;
    IF length = 0 OR cardinality(words) < length
       OR (cardinality(words) > length AND wanted[length] <> '*') THEN
        RETURN false;
    END IF;
    FOR place IN 1..length LOOP
        IF wanted[place] NOT IN ('*', words[place]) THEN
            RETURN false;
        END IF;
    END LOOP;
    RETURN true;
END $$;

-- All patterns that select a name, so that an index finds their subscriptions, however
-- many others there are. Each word may stand there or be a star, and a star may stand
-- for all that is left: 6 patterns for two words, 12 for three, 96 for six. For more
-- words than that, those that there are are asked one by one; in the snapshot of the
-- statement that calls this, since it is STABLE.
--
-- Called by pgqueue_store_messages() and pgqueue_store_message().
--
-- Locks: none.
CREATE OR REPLACE FUNCTION pgqueue_patterns_of(name text) RETURNS text[]
LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
DECLARE
    words text[] := string_to_array(name, '.');
    length integer := cardinality(words);
    begun text[] := ARRAY[words[1], '*'];
    further text[];
    patterns text[] := begun;
    part text;
BEGIN
    IF length > 6 THEN
        RETURN ARRAY(
            SELECT DISTINCT s.pattern::text FROM pgqueue_subscription s
             WHERE (s.topic = words[1] OR s.topic IS NULL) AND s.disabled_at IS NULL
               AND pgqueue_pattern_selects(s.pattern, name));
    END IF;
    FOR place IN 2..length LOOP
        further := '{}';
        FOREACH part IN ARRAY begun LOOP
            further := further || ARRAY[part || '.' || words[place], part || '.*'];
            IF place < length THEN
                patterns := patterns || (part || '.*');
            END IF;
        END LOOP;
        begun := further;
    END LOOP;
    RETURN CASE WHEN length > 1 THEN patterns || begun ELSE patterns END;
END $$;
