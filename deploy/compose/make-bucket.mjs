/** Writes the keys of the bundled S3 server where the mirror reads them, and makes its bucket, once. */
import { writeFileSync } from 'node:fs';
import {
  CreateBucketCommand,
  HeadBucketCommand,
  S3Client,
} from '@aws-sdk/client-s3';

const { S3_ACCESS_KEY, S3_SECRET_KEY } = process.env;
writeFileSync(
  '/credentials/s3',
  `[default]\naws_access_key_id = ${S3_ACCESS_KEY}\naws_secret_access_key = ${S3_SECRET_KEY}\n`,
);

const url = new URL(process.env.OBJECT_STORE_URL ?? '');
const endpoint = url.searchParams.get('endpoint') ?? undefined;
const Bucket = url.hostname;

if (endpoint === undefined) {
  console.log(`${url.protocol}//${Bucket}: a store of your own, left as it is`);
} else {
  const client = new S3Client({
    region: url.searchParams.get('region') ?? 'us-east-1',
    endpoint,
    forcePathStyle: true,
    credentials: { accessKeyId: S3_ACCESS_KEY, secretAccessKey: S3_SECRET_KEY },
  });
  try {
    await client.send(new HeadBucketCommand({ Bucket }));
    console.log(`${Bucket}: is there`);
  } catch (error) {
    if (error.$metadata?.httpStatusCode !== 404) throw error;
    await client.send(new CreateBucketCommand({ Bucket }));
    console.log(`${Bucket}: made`);
  }
}
