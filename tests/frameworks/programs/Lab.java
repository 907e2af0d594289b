package lab;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

/** What the programs in Java share: where they are, and what becomes of a letter in their hands. */
public class Lab {
    public static final String URL = System.getenv("LAB_URL");
    public static final String PREFIX = System.getenv("LAB_PREFIX");
    public static final List<String> LETTERS = List.of(System.getenv("LAB_LETTERS").split(" "));
    public static boolean isMended;
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Set<String> ONCE_FAILED = new HashSet<>();

    public static class Declined extends RuntimeException {
        public Declined(String message) {
            super(message);
        }
    }

    /** A letter is in a consumer's hands: the way in which it shall die, "" where it was handled. */
    public static synchronized String take(String letter, Object body, Map<String, ?> headers) {
        String event = isMended ? "handled" : "failed";
        if (isMended && letter.endsWith(".hiccup") && ONCE_FAILED.add(letter)) {
            event = "hiccup";
        }
        var seen = new LinkedHashMap<String, Object>();
        seen.put("event", event);
        seen.put("letter", letter);
        seen.put("body", body);
        seen.put("headers", headers);
        try {
            System.out.println(JSON.writeValueAsString(seen));
        } catch (java.io.IOException error) {
            throw new IllegalStateException(error);
        }
        if (event.equals("hiccup")) {
            throw new IllegalStateException("a hiccup");
        }
        return isMended ? "" : letter.substring(0, letter.indexOf('.'));
    }
}
