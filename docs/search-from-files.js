// Search for a site that is opened as files: browsers start no worker from a file. The search then runs in a frame of the page.
// build_docs.py writes search.js beside the pages, with the same index as search.json.
if (location.protocol === "file:") {
  window.Worker = class {
    constructor(address) {
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      inside.postMessage = (data) => this.deliver(data, () => this);
      const script = inside.document.createElement("script");
      this.loaded = new Promise((done, failed) => {
        script.onload = done;
        script.onerror = failed;
      });
      script.src = address;
      inside.document.body.append(script);
    }
    // As between threads: a copy, and later.
    deliver(data, receiver) {
      const copy = structuredClone(data);
      setTimeout(() => receiver()?.onmessage?.({ data: copy }));
    }
    async postMessage(data) {
      await this.loaded;
      this.deliver(data, () => this.frame.contentWindow);
    }
    terminate() {
      this.frame.remove();
    }
  };
}
