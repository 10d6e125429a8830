'use strict';
const UNITS = {s: 1, ms: 1e-3, us: 1e-6, ns: 1e-9, J: 1, mJ: 1e-3, uJ: 1e-6, KiB: 2 ** 10, MiB: 2 ** 20,
  GiB: 2 ** 30, TiB: 2 ** 40, GFLOPS: 1, TFLOPS: 1e3, GIOPS: 1, TIOPS: 1e3, 'GB/s': 1, 'TB/s': 1e3};
const valueOf = text => {  // "1,234", "*43.3 us", "+5.3 %", "x 2.4" (a change of +140 %)
  const parts = /^[*~?]*(x )?([-+]?[\d.,]+(?:e[-+]?\d+)?) ?([A-Za-z/]*)/.exec(text.trim());
  if (!parts) return NaN;
  const number = parseFloat(parts[2].replace(/,/g, '')) * (UNITS[parts[3]] || 1);
  return parts[1] ? (number - 1) * 100 : number;
};
const COLLATOR = new Intl.Collator('en', {numeric: true});

document.querySelectorAll('table').forEach(table => {
  const body = table.tBodies[0], rows = [...body.rows], heads = [...table.tHead.rows[0].cells];
  if (rows.length > 1) heads.forEach((head, column) => {
    const button = document.createElement('button');
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener('click', () => {  // one way, the other way, the original order
      const orders = ['ascending', 'descending'];
      if (!head.classList.contains('l')) orders.reverse();
      const next = [...orders, ''][orders.indexOf(head.getAttribute('aria-sort')) + 1];
      heads.forEach(each => each.removeAttribute('aria-sort'));
      const keyed = rows.map(row => {
        const text = row.cells[column].textContent;
        return {row, text, value: valueOf(text)};
      });
      if (next) {
        head.setAttribute('aria-sort', next);
        const sign = next === 'ascending' ? 1 : -1;
        keyed.sort((a, b) => isNaN(a.value) - isNaN(b.value)  // words come last either way
          || sign * (a.value - b.value || COLLATOR.compare(a.text, b.text)));
      }
      body.replaceChildren(...keyed.map(each => each.row));
    });
  });
});
