/** The last line: without its line end, whole or cut. */
import { HOUR, makeLedger } from '../ledger.ts';
import {
  csvFor,
  declare,
  layoutCase,
  NO_LIE,
  PARTLY,
  textCase,
  WHOLE,
  type HostileCase,
  type Phase,
} from './case.ts';
import { THIRTEEN } from '../layout.ts';
import { cut, messages, reply } from '../reply.ts';

/** Rows of 30 days that end so many hours before now. */
const untilHours =
  (hours: number): Phase['truth'] =>
  (now, party) =>
    makeLedger(now, {
      seed: 'no-final-line-end',
      party,
      fromHours: 720,
      toHours: 1,
      rows: 240,
    }).filter(({ time }) => time < now - BigInt(hours) * HOUR);
const GROWN_WITHOUT_LINE_END: Phase = {
  clock: 0,
  truth: untilHours(0),
  answer: (request, truth) => reply(csvFor(request, truth).trimEnd()),
  expected: WHOLE,
};

export const CASES_OF_ENDINGS: readonly HostileCase[] = [
  declare(
    'no-final-line-end-with-length',
    'the last line has no end, the length fits',
    (request, truth) =>
      reply(csvFor(request, truth).trimEnd(), { framing: 'length' }),
    WHOLE,
  ),
  textCase(
    'no-final-line-end',
    'the last line has no end; the chunks end well',
    (csv) => csv.trimEnd(),
    WHOLE,
    { followedBy: [GROWN_WITHOUT_LINE_END], clock: -48, truth: untilHours(48) },
  ),
  layoutCase(
    'no-final-line-end-and-crlf',
    'lines are parted by CRLF, the last one has no end',
    { ...THIRTEEN, lineEnd: '\r\n' },
    WHOLE,
    {
      answer: (request, truth) =>
        reply(
          csvFor(request, truth, { ...THIRTEEN, lineEnd: '\r\n' }).trimEnd(),
        ),
    },
  ),
  textCase(
    'no-final-line-end-and-no-row',
    'a header line without an end, and no entry',
    (csv) => csv.trimEnd(),
    WHOLE,
    { truth: () => [] },
  ),
  declare(
    'no-final-line-end-in-messages',
    'messages; the last line of the CSV in them has no end',
    (request, truth) =>
      messages(cut(csvFor(request, truth).trimEnd(), 700), 'base64'),
    WHOLE,
  ),
  declare(
    'no-final-line-end-in-messages-with-length',
    'messages of a length that fits; the last line of the CSV in them has no end',
    (request, truth) => ({
      ...messages(cut(csvFor(request, truth).trimEnd(), 700), 'plain'),
      framing: 'length',
    }),
    WHOLE,
  ),
  declare(
    'no-final-line-end-and-no-length',
    'the last line has no end, and the end of the connection ends the body',
    (request, truth) =>
      reply(csvFor(request, truth).trimEnd(), { framing: 'close' }),
    WHOLE,
  ),
  textCase(
    'no-final-line-end-and-cut',
    'the last line never has an end; each answer is cut elsewhere, in the last number of a row',
    (csv, { n }) => {
      const lines = csv.trimEnd().split('\n');
      return lines.length < 20
        ? csv.trimEnd()
        : lines
            .slice(0, 8 + (n % 9))
            .join('\n')
            .slice(0, -2);
    },
    PARTLY,
  ),
  textCase(
    'cut-in-a-number',
    'the answer ends in the middle of the last number, well framed',
    (csv) => csv.slice(0, -3),
    PARTLY,
  ),
  declare(
    'cut-in-a-number-with-length',
    'the answer ends in the middle of the last number; the length is that of what is left',
    (request, truth) =>
      reply(csvFor(request, truth).slice(0, -3), { framing: 'length' }),
    PARTLY,
  ),
  declare(
    'cut-in-a-number-in-messages',
    'the CSV in the messages ends in the middle of the last number',
    (request, truth) =>
      messages(cut(csvFor(request, truth).slice(0, -3), 700), 'base64'),
    PARTLY,
  ),
  declare(
    'buffer-that-ends-in-a-number',
    'no answer is longer than 3000 bytes; the length is that of what is left',
    (request, truth) =>
      reply(csvFor(request, truth).slice(0, 3000), { framing: 'length' }),
    NO_LIE,
  ),
];
