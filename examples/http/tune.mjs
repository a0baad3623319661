// A whole search from JavaScript (Node 18 or newer, no package): ask, train, tell.
//   FREEZETHAW_URL=http://127.0.0.1:8750 FREEZETHAW_TOKEN=... node tune.mjs
const { FREEZETHAW_URL: url, FREEZETHAW_TOKEN: token } = process.env;

async function call(path, body) {
  const headers = { Authorization: `Bearer ${token}`, "Content-Type": "application/json" };
  const answer = await fetch(`${url}/api/studies${path}`, { method: "POST", headers, body: JSON.stringify(body ?? {}) });
  const found = await answer.json();
  if (!answer.ok) throw new Error(found.error);
  return found;
}

const space = { rate: { type: "float", low: 0.001, high: 1.0, log: true } };
await call("", { name: "javascript", space, max_epochs: 8, budget: 12 });
for (;;) {
  const { decision, finished } = await call("/javascript/ask");
  if (finished) { console.log(finished); break; }
  if (!decision) { await new Promise((done) => setTimeout(done, 1000)); continue; }
  const beating = setInterval(() => call("/javascript/heartbeat", { decision: decision.number, token: decision.token }), 15000);
  const losses = [];
  for (let epoch = decision.from_epoch + 1; epoch <= decision.to_epoch; epoch++) {
    losses.push((Math.log10(decision.config.rate) + 1.5) ** 2 + 1 / epoch);
  }
  clearInterval(beating);
  await call("/javascript/tell", { decision: decision.number, token: decision.token, losses });
}
