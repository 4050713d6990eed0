package klamm;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.function.Predicate;
import java.util.stream.Stream;

/** A process of klamm. It ends with this one at the latest. */
final class Broker implements AutoCloseable {
    static final String VERSION = "0.1.0";
    private static final int START_TIMEOUT_S = 120;
    private static final int STOP_TIMEOUT_S = 20;
    private static final int LOOK_EVERY_MS = 5;
    private static final int KEPT_OUTPUT = 16 << 10;

    /** The ready file. */
    final Map<String, Object> ready;

    private final Process process;
    private final Path folder;
    private final StringBuffer output = new StringBuffer();

    Broker(List<String> command, List<String> options) {
        List<String> words = new ArrayList<>(command);
        try {
            folder = Files.createTempDirectory("klamm-");
            Path file = folder.resolve("ready.json");
            words.addAll(List.of("serve", "--ephemeral", "--stop-at-eof", "--ready-file", file.toString()));
            words.addAll(options);
            // Its standard input is a pipe of this process: it stops when that ends.
            process = new ProcessBuilder(words)
                    .redirectOutput(ProcessBuilder.Redirect.DISCARD)
                    .start();
            Thread reader = new Thread(this::keepOutput, "klamm-output");
            reader.setDaemon(true);
            reader.start();
            ready = Answer.object(Json.read(waitFor(file, reader)));
        } catch (IOException error) {
            throw new KlammException("the broker does not start: " + error.getMessage());
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw new KlammException("the start of the broker was interrupted");
        }
    }

    private String waitFor(Path file, Thread reader) throws IOException, InterruptedException {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(START_TIMEOUT_S);
        while (process.isAlive() && System.nanoTime() < deadline) {
            if (Files.exists(file)) {
                return Files.readString(file);
            }
            Thread.sleep(LOOK_EVERY_MS);
        }
        close();
        reader.join(TimeUnit.SECONDS.toMillis(1));
        throw new KlammException("the broker does not start: " + output.toString().trim());
    }

    private void keepOutput() {
        byte[] buffer = new byte[4096];
        try (InputStream errors = process.getErrorStream()) {
            for (int read = errors.read(buffer); read >= 0; read = errors.read(buffer)) {
                output.append(new String(buffer, 0, read, UTF_8));
                output.delete(0, Math.max(0, output.length() - KEPT_OUTPUT));
            }
        } catch (IOException error) {
            output.append(error);
        }
    }

    @Override
    public void close() {
        try {
            process.getOutputStream().close();
            if (!process.waitFor(STOP_TIMEOUT_S, TimeUnit.SECONDS)) {
                process.destroyForcibly();
            }
        } catch (IOException error) {
            process.destroyForcibly();
        } catch (InterruptedException error) {
            process.destroyForcibly();
            Thread.currentThread().interrupt();
        }
        delete(folder);
    }

    private static void delete(Path folder) {
        try (Stream<Path> files = Files.list(folder)) {
            files.map(Path::toFile).forEach(File::delete);
        } catch (IOException error) {
            return;
        }
        folder.toFile().delete();
    }

    /** The variable KLAMM, or the first of klamm, uvx, pipx and python3 that is there. */
    static List<String> findCommand(String named, Predicate<String> isThere) {
        if (named != null && !named.isBlank()) {
            return List.of(named.trim().split("\\s+"));
        }
        String requirement = "klamm==" + VERSION;
        return Stream.of(
                        List.of("klamm"),
                        List.of("uvx", "--from", requirement, "klamm"),
                        List.of("pipx", "run", "--spec", requirement, "klamm"),
                        List.of("python3", "-m", "klamm"),
                        List.of("python", "-m", "klamm"))
                .filter(words -> isThere.test(words.get(0)))
                .findFirst()
                .orElseThrow(() -> new KlammException(
                        "there is no klamm, uvx, pipx or python3; set the variable KLAMM to the command of klamm"));
    }

    static boolean isOnPath(String name) {
        String path = System.getenv().getOrDefault("PATH", "");
        return Stream.of(path.split(File.pathSeparator))
                .flatMap(folder -> Stream.of("", ".exe", ".cmd").map(ending -> new File(folder, name + ending)))
                .anyMatch(file -> file.isFile() && file.canExecute());
    }
}
