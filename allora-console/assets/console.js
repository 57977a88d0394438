// Live: the page asks for itself again and exchanges the parts that have changed, when the server says so and every
// few seconds.
'use strict';
(() => {
  const every = 5000;
  const state = document.getElementById('live');
  let timer = 0, held = false, busy = false, again = false, since = null, hints = null;
  const say = (text) => {
    if (state.textContent === text) return;
    state.textContent = text;
    state.className = { live: 'ok', held: 'muted' }[text] || 'warn';
  };
  // A part in which somebody types, reads a fold or selects text is left alone.
  const isInUse = (part) => {
    const selection = document.getSelection();
    return part.contains(document.activeElement) || part.querySelector('details[open]')
      || (selection && !selection.isCollapsed && part.contains(selection.anchorNode));
  };
  const stale = (why) => {
    if (held) return;
    since = since || new Date();
    say('stale since ' + since.toTimeString().slice(0, 8) + ': ' + why);
  };
  function refresh() {
    clearTimeout(timer);
    timer = 0;
    again = busy;
    if (busy || held || document.hidden) return;
    busy = true;
    const ask = new XMLHttpRequest();
    ask.responseType = 'document';
    ask.timeout = 10000;
    ask.onload = () => {
      if (held) return;
      if (ask.status !== 200 || !ask.response) { stale('status ' + ask.status); return; }
      for (const now of document.querySelectorAll('[data-live]')) {
        const next = ask.response.getElementById(now.id);
        if (next && !isInUse(now) && !next.isEqualNode(now)) now.replaceWith(document.importNode(next, true));
      }
      since = null;
      say('live');
    };
    ask.onerror = ask.ontimeout = () => stale('no answer');
    ask.onloadend = () => { busy = false; if (again) refresh(); else later(); };
    ask.open('GET', location.href);
    ask.send();
  }
  function later() {
    const isOn = !held && !document.hidden;
    if (!timer && isOn && !busy) timer = setTimeout(refresh, every);
    // A browser has few connections to a server: a page that nobody looks at keeps none. The server may refuse.
    if (hints && (!isOn || hints.readyState === 2)) { hints.close(); hints = null; }
    if (!hints && isOn) { hints = new EventSource('events'); hints.onmessage = refresh; }
  }
  document.addEventListener('visibilitychange', () => { refresh(); later(); });
  // What is typed here must not look stale, and its address may be that of a form that came back.
  if (document.querySelector('[data-still]')) held = true;
  const pages = { n: 0, j: 1, r: 2, o: 3, a: 4, t: 5 };
  let wasG = false;
  document.addEventListener('keydown', (event) => {
    if (event.target.closest('input,textarea,select') || event.ctrlKey || event.metaKey || event.altKey) return;
    const links = document.querySelectorAll('header nav a');
    if (wasG && event.key in pages && links[pages[event.key]]) links[pages[event.key]].click();
    wasG = event.key === 'g';
    if (event.key === '/') { event.preventDefault(); document.getElementById('find').focus(); }
    if (event.key === 'w' && document.getElementById('at')) { event.preventDefault(); document.getElementById('at').focus(); }
    if (event.key === '.' && !document.querySelector('[data-still]')) { held = !held; say(held ? 'held' : 'live'); clearTimeout(timer); timer = 0; later(); }
  });
  if (!held) say('live');
  later();
})();
