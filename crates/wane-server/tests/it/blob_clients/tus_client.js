// Uploads a file with tus-js-client as the JSON of its argument asks, and tells what happens: a line
// of JSON for each answer, each attempt that failed and each step, and one for the outcome.
'use strict';

const fs = require('fs');
const net = require('net');
const { createHash } = require('crypto');
const tus = require('tus-js-client');

const asked = JSON.parse(process.argv[2]);

// A slow line: without it a whole upload is out before anything can happen to it.
if (asked.slowMillis) {
  const write = net.Socket.prototype._writeGeneric;
  net.Socket.prototype._writeGeneric = function (...given) {
    setTimeout(() => write.apply(this, given), asked.slowMillis);
  };
}

const bytes = asked.file ? fs.readFileSync(asked.file) : null;
const chunkSize = asked.chunkSize ?? Number.POSITIVE_INFINITY;

const tell = (line) => fs.writeSync(1, `${JSON.stringify(line)}\n`);
const end = (outcome, more) => {
  tell({ outcome, ...more });
  process.exit(0);
};

// Longer than a test has patience.
setTimeout(() => end('late'), 45_000).unref();

// The sum of the bytes that a request is about to carry, or of others.
const checksum = (offset) => {
  const part = bytes.subarray(offset, Math.min(offset + chunkSize, bytes.length));
  const summed = asked.checksum === 'wrong' ? Buffer.concat([part, Buffer.from('x')]) : part;
  return `sha1 ${createHash('sha1').update(summed).digest('base64')}`;
};

const options = {
  retryDelays: null,
  ...asked.options,
  chunkSize,
  headers: { Authorization: `Bearer ${asked.key}`, ...asked.headers },
  ...(asked.urls && { urlStorage: new tus.FileUrlStorage(asked.urls) }),
  onBeforeRequest: async (request) => {
    if (request.getMethod() === 'PATCH' && asked.checksum) {
      request.setHeader('Upload-Checksum', checksum(Number(request.getHeader('Upload-Offset'))));
    }
    if (asked.pauseMillis) {
      await new Promise((resume) => setTimeout(resume, asked.pauseMillis));
    }
  },
  onAfterResponse: (request, response) => {
    const offset = response.getHeader('Upload-Offset');
    tell({ method: request.getMethod(), status: response.getStatus(), offset });
  },
  onShouldRetry: (error) => {
    tell({ failed: String(error.message).split(',')[0] });
    return true;
  },
  onUploadUrlAvailable: () => tell({ url: upload.url }),
  onProgress: (sent) => {
    tell({ sent });
    if (asked.abortAt !== undefined && sent >= asked.abortAt) {
      upload.abort(asked.terminate === true).then(() => end('aborted', { url: upload.url }));
    }
  },
  onSuccess: () => end('success', { url: upload.url }),
  onError: (error) => {
    const answer = error.originalResponse;
    const status = answer ? answer.getStatus() : null;
    end('error', { status, detail: answer ? answer.getBody() : String(error) });
  },
};

if (asked.terminateUrl) {
  tus.Upload.terminate(asked.terminateUrl, options).then(() => end('success'), options.onError);
}
const upload = asked.terminateUrl ? null : new tus.Upload(bytes, options);
if (upload) {
  upload.findPreviousUploads().then((previous) => {
    tell({ previous: previous.length });
    if (previous.length > 0) {
      upload.resumeFromPreviousUpload(previous[0]);
    }
    upload.start();
  });
}
