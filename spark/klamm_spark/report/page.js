const box = document.querySelector('#search'), found = document.querySelector('#found');
const items = [...document.querySelectorAll('.finding, .card tbody tr')];
const open = item => { for (let at = item; at; at = at.parentElement) if (at.tagName === 'DETAILS') at.open = true; };
box.addEventListener('input', () => {
  const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
  let count = 0;
  for (const item of items) {
    const text = item.textContent.toLowerCase(), is = words.every(word => text.includes(word));
    item.hidden = !is;
    count += is;
    if (is && words.length && item.tagName === 'TR') open(item.parentElement);
  }
  for (const card of document.querySelectorAll('section .card:not(.finding)'))
    card.hidden = words.length > 0 && !card.querySelector('tbody tr:not([hidden])');
  for (const section of document.querySelectorAll('section'))
    section.hidden = words.length > 0 && !section.querySelector('.finding:not([hidden]), .card:not(.finding):not([hidden])');
  found.textContent = words.length ? count + ' found' : '';
});
addEventListener('keydown', event => {
  if (event.key === '/' && document.activeElement !== box) { event.preventDefault(); box.focus(); }
});
const target = () => { const at = location.hash && document.getElementById(location.hash.slice(1)); if (at) { open(at); at.scrollIntoView(); } };
addEventListener('hashchange', target);
target();
