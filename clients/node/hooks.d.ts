import type { Klamm, StartOptions } from "./index.js";

/**
 * Starts a broker before the tests of a file, and stops it after them. `hooks` has those of the test runner: nothing for
 * Jest's globals, otherwise what `import * as hooks from "vitest"` or `from "node:test"` gives. A test's faults end with
 * it. If a test of Vitest or node:test fails, the timeline of the broker is written to the terminal.
 */
export function useKlamm(options?: StartOptions, hooks?: object): Klamm;
