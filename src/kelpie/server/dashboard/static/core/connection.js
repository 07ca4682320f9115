// Whether the server answers. Requests report what they find; while it does not answer, one probe asks again and again.

const FIRST_MS = 500;
const LONGEST_MS = 8000;
const PROBE_MS = 5000;

class Connection extends EventTarget {
  /** @type {boolean} */
  online = true;
  /** Milliseconds until the next probe; 0 while the server answers. */
  waitMs = 0;
  #probing = false;

  /** A request reached the server. */
  reached() {
    if (this.online) return;
    this.online = true;
    this.waitMs = 0;
    this.dispatchEvent(new Event("change"));
    this.dispatchEvent(new Event("back"));
  }

  /** A request did not reach the server. */
  lost() {
    if (this.online) {
      this.online = false;
      this.waitMs = FIRST_MS;
      this.dispatchEvent(new Event("change"));
    }
    if (!this.#probing) void this.#probe();
  }

  /** Resolves when the server answers again. @param {AbortSignal} [signal] @returns {Promise<void>} */
  back(signal) {
    if (signal?.aborted) return Promise.reject(new DOMException("Stopped.", "AbortError"));
    if (this.online) return Promise.resolve();
    return new Promise((resolve, reject) => {
      const stop = () => {
        this.removeEventListener("back", done);
        reject(new DOMException("Stopped.", "AbortError"));
      };
      const done = () => {
        signal?.removeEventListener("abort", stop);
        resolve();
      };
      this.addEventListener("back", done, { once: true });
      signal?.addEventListener("abort", stop, { once: true });
    });
  }

  /** Asks at once, without waiting for the next probe. */
  async ask() {
    try {
      const answer = await fetch(new URL("v1/health/", new URL(".", document.baseURI)), {
        cache: "no-store",
        signal: AbortSignal.timeout(PROBE_MS),
      });
      if (answer.ok) this.reached();
    } catch {
      // still away
    }
  }

  async #probe() {
    this.#probing = true;
    while (!this.online) {
      await new Promise((resolve) => window.setTimeout(resolve, this.waitMs));
      if (!this.online) await this.ask();
      if (!this.online) {
        this.waitMs = Math.min(this.waitMs * 2, LONGEST_MS);
        this.dispatchEvent(new Event("change"));
      }
    }
    this.#probing = false;
  }
}

export const connection = new Connection();
