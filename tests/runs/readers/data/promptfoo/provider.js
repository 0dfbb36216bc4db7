// Answers by the question and how often it was asked; "fail" is an error of the provider.
const answers = {
  weak: { '1 + 1': '2 2 3', '2 + 2': '5 4 5', '3 + 3': '6 fail 7', '4 + 4': '8 8 8' },
  strong: { '1 + 1': '2 2 2', '2 + 2': '4 4 5', '3 + 3': '6 6 6', '4 + 4': '9 8 8' },
};
module.exports = class {
  constructor(options) {
    this.name = options.config.name;
    this.asked = {};
  }
  id() {
    return `arithmetic:${this.name}`;
  }
  async callApi(prompt) {
    const question = prompt.match(/\d \+ \d/)[0];
    const turn = this.asked[prompt] || 0;
    this.asked[prompt] = turn + 1;
    const output = answers[this.name][question].split(' ')[turn];
    if (output === 'fail') return { error: 'the provider is gone' };
    const tokenUsage = { prompt: 5, completion: 1 + turn, total: 6 + turn };
    return { output, tokenUsage, cost: 0.5 };
  }
};
