// Light or dark: as the system says, unless the person chose. Runs before the page is drawn, so it must stay a plain
// script (not a module) and small.
(() => {
  const KEY = "kelpie-theme";
  const root = document.documentElement;
  const stored = () => {
    try {
      return localStorage.getItem(KEY);
    } catch {
      return null; // storage is blocked: the system decides
    }
  };
  /** @param {string | null} theme */
  const apply = (theme) => {
    if (theme === "light" || theme === "dark") root.dataset.theme = theme;
    else delete root.dataset.theme;
  };
  apply(stored());
  document.addEventListener("kelpie-theme", (event) => {
    const theme = /** @type {CustomEvent<string>} */ (event).detail;
    try {
      localStorage.setItem(KEY, theme);
    } catch {
      // it holds for this page only
    }
    apply(theme);
  });
})();
