// The colours that a person has chosen. The choice is all that the page keeps in the browser.

const KEY = 'curfew-theme';

/** The choices; auto is the system's. @type {[string, string][]} */
export const themes = [['auto', 'Auto'], ['light', 'Light'], ['dark', 'Dark']];

/** Returns the choice. */
export function theme() {
  try {
    const kept = localStorage.getItem(KEY);
    return themes.some(([name]) => name === kept) ? String(kept) : 'auto';
  } catch {
    return 'auto'; // the browser keeps nothing
  }
}

/** Chooses. @param {string} name */
export function setTheme(name) {
  try {
    if (name === 'auto') localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, name);
  } catch { /* it holds until the page is left */ }
  applyTheme(name);
}

/** Shows a choice. @param {string} [name] */
export function applyTheme(name = theme()) {
  if (name === 'auto') document.documentElement.removeAttribute('data-theme');
  else document.documentElement.setAttribute('data-theme', name);
}
