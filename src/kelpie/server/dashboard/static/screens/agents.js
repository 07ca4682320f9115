import { h, replace } from "../core/dom.js";
import { Screen } from "../core/screen.js";

export default class AgentsScreen extends Screen {
  show() {
    replace(this, h("h1", null, "Agents"));
  }
}

customElements.define("kelpie-agents", AgentsScreen);
