// Shows the data that is baked into the page.

import { show } from "./app.mjs";

show(document.getElementById("weightstore"), JSON.parse(document.getElementById("weightstore-data").textContent));
