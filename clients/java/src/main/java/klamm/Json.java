package klamm;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** JSON as maps, lists, strings, longs, doubles, booleans and null. */
final class Json {
    private final String text;
    private int at;

    private Json(String text) {
        this.text = text;
    }

    static Object read(String text) {
        Json json = new Json(text);
        Object value = json.value();
        json.skipSpace();
        if (json.at != text.length()) {
            throw json.unexpected();
        }
        return value;
    }

    static String write(Object value) {
        StringBuilder out = new StringBuilder();
        write(value, out);
        return out.toString();
    }

    private static void write(Object value, StringBuilder out) {
        if (value instanceof Map) {
            String comma = "";
            out.append('{');
            for (Map.Entry<?, ?> each : ((Map<?, ?>) value).entrySet()) {
                out.append(comma);
                write(String.valueOf(each.getKey()), out);
                out.append(':');
                write(each.getValue(), out);
                comma = ",";
            }
            out.append('}');
        } else if (value instanceof Iterable) {
            String comma = "";
            out.append('[');
            for (Object each : (Iterable<?>) value) {
                out.append(comma);
                write(each, out);
                comma = ",";
            }
            out.append(']');
        } else if (value == null || value instanceof Number || value instanceof Boolean) {
            out.append(value);
        } else {
            writeText(value.toString(), out);
        }
    }

    private static void writeText(String text, StringBuilder out) {
        out.append('"');
        for (int i = 0; i < text.length(); i++) {
            char letter = text.charAt(i);
            if (letter == '"' || letter == '\\') {
                out.append('\\').append(letter);
            } else if (letter < ' ' || Character.isSurrogate(letter)) {
                out.append(String.format("\\u%04x", (int) letter));
            } else {
                out.append(letter);
            }
        }
        out.append('"');
    }

    private Object value() {
        skipSpace();
        char first = peek();
        switch (first) {
            case '{':
                return object();
            case '[':
                return array();
            case '"':
                return string();
            case 't':
                return word("true", Boolean.TRUE);
            case 'f':
                return word("false", Boolean.FALSE);
            case 'n':
                return word("null", null);
            default:
                return number();
        }
    }

    private Map<String, Object> object() {
        Map<String, Object> found = new LinkedHashMap<>();
        at++;
        skipSpace();
        while (peek() != '}') {
            skipSpace();
            String name = string();
            skipSpace();
            expect(':');
            found.put(name, value());
            skipSpace();
            if (peek() != '}') {
                expect(',');
            }
        }
        at++;
        return found;
    }

    private List<Object> array() {
        List<Object> found = new ArrayList<>();
        at++;
        skipSpace();
        while (peek() != ']') {
            found.add(value());
            skipSpace();
            if (peek() != ']') {
                expect(',');
            }
        }
        at++;
        return found;
    }

    private String string() {
        expect('"');
        StringBuilder found = new StringBuilder();
        while (peek() != '"') {
            char letter = text.charAt(at++);
            found.append(letter == '\\' ? escaped() : letter);
        }
        at++;
        return found.toString();
    }

    private char escaped() {
        char letter = peek();
        at++;
        switch (letter) {
            case 'n':
                return '\n';
            case 't':
                return '\t';
            case 'r':
                return '\r';
            case 'b':
                return '\b';
            case 'f':
                return '\f';
            case 'u':
                at += 4;
                return (char) Integer.parseInt(text.substring(at - 4, at), 16);
            default:
                return letter;
        }
    }

    private Number number() {
        int start = at;
        while (at < text.length() && "+-.eE0123456789".indexOf(text.charAt(at)) >= 0) {
            at++;
        }
        String digits = text.substring(start, at);
        if (digits.isEmpty()) {
            throw unexpected();
        }
        if (digits.matches("-?\\d+")) {
            return Long.valueOf(digits);
        }
        return Double.valueOf(digits);
    }

    private Object word(String word, Object value) {
        if (!text.startsWith(word, at)) {
            throw unexpected();
        }
        at += word.length();
        return value;
    }

    private void expect(char letter) {
        if (peek() != letter) {
            throw unexpected();
        }
        at++;
    }

    private char peek() {
        if (at >= text.length()) {
            throw unexpected();
        }
        return text.charAt(at);
    }

    private void skipSpace() {
        while (at < text.length() && Character.isWhitespace(text.charAt(at))) {
            at++;
        }
    }

    private IllegalArgumentException unexpected() {
        return new IllegalArgumentException("no JSON at character " + at + ": " + text);
    }
}
