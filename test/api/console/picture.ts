/**
 * Pictures compared by eye's measure, in the browser itself: an eighth of their size, so
 * that no font's edges count.
 */
import type { Page } from 'playwright-core';

const SHRINK = 8;
/** Of 255, in a channel: what is seen at a glance. */
const SEEN_MIN = 40;

/** @returns the picture as PNG at an eighth of its size */
export async function shrunk(page: Page, png: Buffer): Promise<Buffer> {
  const url = await page.evaluate(
    `(async () => {
      const bytes = Uint8Array.from(atob('${png.toString('base64')}'), (one) => one.charCodeAt(0));
      const image = await createImageBitmap(new Blob([bytes]));
      const canvas = new OffscreenCanvas(Math.round(image.width / ${SHRINK}), Math.round(image.height / ${SHRINK}));
      const context = canvas.getContext('2d');
      context.imageSmoothingQuality = 'high';
      context.drawImage(image, 0, 0, canvas.width, canvas.height);
      const png = new Uint8Array(await (await canvas.convertToBlob()).arrayBuffer());
      return btoa(Array.from(png, (byte) => String.fromCharCode(byte)).join(''));
    })()`,
  );
  return Buffer.from(String(url), 'base64');
}

/** @returns which share of the cells differs, 0 to 1; 1 where the sizes do */
export async function difference(
  page: Page,
  one: Buffer,
  other: Buffer,
): Promise<number> {
  const a = one.toString('base64');
  const b = other.toString('base64');
  const found = await page.evaluate(
    `(async () => {
      const read = async (text) => {
        const image = await createImageBitmap(new Blob([Uint8Array.from(atob(text), (one) => one.charCodeAt(0))]));
        const context = new OffscreenCanvas(image.width, image.height).getContext('2d');
        context.drawImage(image, 0, 0);
        return context.getImageData(0, 0, image.width, image.height);
      };
      const [a, b] = await Promise.all(['${a}', '${b}'].map(read));
      if (a.width !== b.width || a.height !== b.height) return 1;
      let different = 0;
      for (let at = 0; at < a.data.length; at += 4) {
        const most = Math.max(...[0, 1, 2].map((n) => Math.abs(a.data[at + n] - b.data[at + n])));
        if (most > ${SEEN_MIN}) different += 1;
      }
      return different / (a.data.length / 4);
    })()`,
  );
  return Number(found);
}
