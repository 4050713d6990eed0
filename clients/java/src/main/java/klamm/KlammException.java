package klamm;

/** What the control API refuses, or cannot do; or a broker that does not start. */
public final class KlammException extends RuntimeException {
    private static final long serialVersionUID = 1;
    private final int status;
    private final int code;
    private final String name;

    KlammException(String message) {
        this(message, 0, 0, null);
    }

    KlammException(String message, int status, int code, String name) {
        super(message);
        this.status = status;
        this.code = code;
        this.name = name;
    }

    /** 400 for a wrong argument, 404 if the named thing does not exist, 408 if the time is over, 409 if the broker refuses. */
    public int status() {
        return status;
    }

    /** Kafka's error code, with status 409. */
    public int code() {
        return code;
    }

    /** Kafka's name of the error, with status 409; otherwise null. */
    public String name() {
        return name;
    }
}
