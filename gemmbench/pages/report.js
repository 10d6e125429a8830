'use strict';
const UNITS = {s: 1, ms: 1e-3, us: 1e-6, ns: 1e-9, J: 1, mJ: 1e-3, uJ: 1e-6, KiB: 2 ** 10, MiB: 2 ** 20,
  GiB: 2 ** 30, TiB: 2 ** 40, GFLOPS: 1, TFLOPS: 1e3, GIOPS: 1, TIOPS: 1e3, 'GB/s': 1, 'TB/s': 1e3};
const make = (tag, set, ...inside) => {
  const element = Object.assign(document.createElement(tag), set);
  element.append(...inside);
  return element;
};
const valueOf = text => {  // "1,234", "*43.3 us", "+5.3 %", "x 2.4" (a change of +140 %)
  const parts = /^[*~?]*(x )?([-+]?[\d.,]+(?:e[-+]?\d+)?) ?([A-Za-z/]*)/.exec(text.trim());
  if (!parts) return NaN;
  const number = parseFloat(parts[2].replace(/,/g, '')) * (UNITS[parts[3]] || 1);
  return parts[1] ? (number - 1) * 100 : number;
};
const COLLATOR = new Intl.Collator('en', {numeric: true});
const MOST = 300;  // rows of a table at a time
const compare = (a, b) => a.value - b.value || isNaN(a.value) - isNaN(b.value)
  || COLLATOR.compare(a.text, b.text);

document.querySelectorAll('table').forEach((table, index) => {
  const body = table.tBodies[0], heads = [...table.tHead.rows[0].cells];
  const rest = JSON.parse(table.parentNode.querySelector('.rest')?.textContent || '[]');
  const rows = [...[...body.rows].map(row => ({row})), ...rest.map(cells => ({cells}))];
  const status = make('span', {role: 'status'}), more = make('button', {type: 'button', hidden: true});
  let order = rows, words = [], most = MOST;
  const textsOf = each => each.texts ||= each.cells
    ? each.cells.map(cell => Array.isArray(cell) ? cell[0] : cell)
    : [...each.row.cells].map(cell => cell.textContent);
  const elementOf = each => each.row ||= make('tr', {}, ...textsOf(each).map((text, column) => {
    const looks = Array.isArray(each.cells[column]) ? each.cells[column][1] : '';
    const cell = make(column ? 'td' : 'th', {className: looks}, text);
    if (!column) cell.scope = 'row';
    return cell;
  }));
  const fits = each => {
    const text = each.text ||= textsOf(each).join(' ').toLowerCase();
    return words.every(word => text.includes(word));
  };
  const show = () => {
    const fit = words.length ? order.filter(fits) : order;
    body.replaceChildren(...fit.slice(0, most).map(elementOf));
    const cut = fit.length > most, count = `${fit.length} of ${rows.length} rows`;
    status.textContent = cut ? `${count}, ${most} shown` : words.length ? count : '';
    more.textContent = `Show all ${fit.length}`;
    more.hidden = !cut;
  };
  if (rows.length > 1) heads.forEach((head, column) => {
    const button = make('button', {type: 'button'}, ...head.childNodes);
    head.append(button);
    button.addEventListener('click', () => {
      const first = head.classList.contains('l') ? 'ascending' : 'descending';
      const other = first === 'descending' ? 'ascending' : 'descending';
      const now = head.getAttribute('aria-sort');
      const next = now === first ? other : now === other ? '' : first;
      heads.forEach(each => each.removeAttribute('aria-sort'));
      if (next) head.setAttribute('aria-sort', next);
      const keyed = rows.map(each => {
        const text = textsOf(each)[column];
        return {each, text, value: valueOf(text)};
      });
      if (next) keyed.sort((a, b) =>  // what has no number comes last, whichever way
        isNaN(a.value) !== isNaN(b.value) || next === 'ascending' ? compare(a, b) : compare(b, a));
      order = keyed.map(key => key.each);
      show();
    });
  });
  if (rows.length > 8) {
    const id = `filter-${index}`, input = make('input', {type: 'search', id, autocomplete: 'off'});
    input.addEventListener('input', () => {
      words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      show();
    });
    more.addEventListener('click', () => { most = Infinity; show(); });
    table.parentNode.before(make('div', {className: 'filter'},
      make('label', {htmlFor: id}, 'Filter rows'), input, status, more));
  }
  if (rest.length) show();
});

const reachable = new ResizeObserver(entries => entries.forEach(({target}) => {
  if (target.scrollWidth <= target.clientWidth) {
    return ['tabindex', 'role', 'aria-label'].forEach(name => target.removeAttribute(name));
  }
  target.tabIndex = 0;  // so that arrow keys move it
  target.setAttribute('role', 'region');
  target.setAttribute('aria-label', target.querySelector('caption').textContent);
}));
document.querySelectorAll('.scroll').forEach(each => reachable.observe(each));

document.querySelectorAll('svg[data-p]').forEach(svg => {
  let said = -1;
  svg.append(...svg.dataset.p.split(',').map(each => {
    const [x, y, other] = each.split(' '), circle = document.createElementNS(svg.namespaceURI, 'circle');
    said = other ? +other : said + 1;
    Object.entries({cx: x, cy: y, r: 5, 'data-s': said}).forEach(pair => circle.setAttribute(...pair));
    return circle;
  }));
});
const samples = JSON.parse(document.getElementById('samples').textContent);
const tip = document.getElementById('tip');
const hide = () => { tip.hidden = true; };
document.addEventListener('pointerover', event => {
  const point = event.target.closest('circle[data-s]');
  if (!point) return hide();
  tip.textContent = samples[point.dataset.s];
  tip.hidden = false;
  const {width, height} = tip.getBoundingClientRect(), gap = 14;
  tip.style.left = `${Math.max(4, Math.min(event.clientX + gap, innerWidth - width - 4))}px`;
  const below = event.clientY + gap + height < innerHeight;
  tip.style.top = `${below ? event.clientY + gap : Math.max(4, event.clientY - gap - height)}px`;
});
document.addEventListener('scroll', hide, {passive: true, capture: true});
document.addEventListener('keydown', event => { if (event.key === 'Escape') hide(); });
