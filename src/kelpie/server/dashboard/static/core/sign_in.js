// Signing in: a key or the password goes to the server once and comes back as a cookie that no script can read.

import { ApiError, request } from "./api.js";
import { h, replace } from "./dom.js";
import { failure } from "./notice.js";

/** @param {Element} place @param {() => void} done */
export function signIn(place, done) {
  const problem = h("div");
  const input = h("input", { id: "credential", type: "password", autocomplete: "current-password", required: true, "aria-describedby": "credential-hint" });
  const button = h("button", { type: "submit", class: "primary" }, "Sign in");
  const form = h(
    "form",
    {
      class: "form",
      on: {
        submit: async (/** @type {SubmitEvent} */ event) => {
          event.preventDefault();
          button.disabled = true;
          replace(problem);
          try {
            await request("POST", "session", { body: { credential: input.value } });
            done();
          } catch (error) {
            if (!(error instanceof ApiError)) throw error;
            const wrong = error.status === 401;
            const told = wrong ? new ApiError("This is neither a valid API key nor the server password.", { status: 401, remedy: "Check it and try again. `kelpie keys create` makes a new key on the server's machine." }) : error;
            replace(problem, failure(told));
            input.select();
          } finally {
            button.disabled = false;
          }
        },
      },
    },
    h("div", { class: "field" }, h("label", { for: "credential" }, "API key or server password"), input, h("small", { id: "credential-hint", class: "hint" }, "The browser stays signed in for 12 hours, or until you sign out.")),
    problem,
    h("div", { class: "row" }, button),
  );
  document.title = "Sign in · Kelpie";
  replace(place, h("main", { id: "main", class: "alone sign-in" }, h("h1", null, "Sign in to Kelpie"), form));
  input.focus();
}
