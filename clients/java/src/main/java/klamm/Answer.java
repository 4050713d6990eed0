package klamm;

import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.function.Function;

/** A JSON object of the control API; each kind has a method for each of its members. */
public abstract class Answer {
    private final Map<String, Object> members;

    Answer(Object members) {
        this.members = object(members);
    }

    final String text(String name) {
        return (String) members.get(name);
    }

    final long number(String name) {
        return ((Number) members.get(name)).longValue();
    }

    final Object any(String name) {
        return members.get(name);
    }

    final byte[] bytes(String name) {
        return decoded(members.get(name));
    }

    final Map<String, String> texts(String name) {
        @SuppressWarnings("unchecked")
        Map<String, String> found = (Map<String, String>) members.get(name);
        return found;
    }

    final <T> List<T> list(String name, Function<Object, T> kind) {
        return each(members.get(name), kind);
    }

    static byte[] decoded(Object text) {
        return text == null ? null : Base64.getDecoder().decode((String) text);
    }

    static <T> List<T> each(Object list, Function<Object, T> kind) {
        List<T> found = new ArrayList<>();
        for (Object one : (List<?>) list) {
            found.add(kind.apply(one));
        }
        return found;
    }

    @SuppressWarnings("unchecked")
    static Map<String, Object> object(Object value) {
        return (Map<String, Object>) value;
    }

    @Override
    public String toString() {
        return getClass().getSimpleName() + members;
    }
}
