// The login form. It also submits the page to return to, including the fragment, which
// browsers do not send by themselves.

const WRONG = '#wrong';

const wanted = new URLSearchParams(location.search).get('next') ?? '/';
const fragment = location.hash === WRONG ? '' : location.hash;

// After a wrong token, `next` already includes the fragment.
document.getElementById('next').value = wanted.includes('#')
  ? wanted
  : `${wanted}${fragment}`;
