// Leaves out of results what no reader needs: node strip.js FILE...
const fs = require('fs');
for (const file of process.argv.slice(2)) {
  const text = fs.readFileSync(file, 'utf8');
  const lines = file.endsWith('.jsonl');
  const content = lines ? text.trim().split('\n').map((line) => JSON.parse(line)) : JSON.parse(text);
  for (const row of lines ? content : content.results.results) {
    delete row.tokenUsage;
    if (row.gradingResult) delete row.gradingResult.componentResults;
  }
  if (!lines) for (const prompt of content.results.prompts) delete prompt.metrics.tokenUsage;
  const stripped = lines ? content.map((row) => JSON.stringify(row)).join('\n') : JSON.stringify(content);
  fs.writeFileSync(file, stripped + '\n');
}
