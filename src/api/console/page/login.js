// The login form. It sends along the page that the reader wanted, with its fragment,
// which browsers do not send by themselves.

const WRONG = '#wrong';

const wanted = new URLSearchParams(location.search).get('next') ?? '/';
const fragment = location.hash === WRONG ? '' : location.hash;

// After a wrong token, `next` already includes the fragment.
document.getElementById('next').value = wanted.includes('#')
  ? wanted
  : `${wanted}${fragment}`;
