//! What a route's requests and answers are subject to.
//!
//! [`Policy::default`] is the `ietf` profile. Each field is one rule's choice; the rule's id stands
//! beside it.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::{HeaderName, Method, StatusCode};

use crate::engine::Wait;
use crate::fingerprint::{BodyMode, Recipe, Secret, Selection};
use crate::key::KeySyntax;
use crate::record::Retention;
use crate::store::OnUnknown;

const MIB: usize = 1 << 20;
const HOUR: Duration = Duration::from_secs(3600);

/// The rules of a route.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Policy {
    /// Whether keys count at all (A8).
    pub mode: Mode,
    /// Where the key comes from, in order (K1).
    pub keys: Vec<KeySource>,
    /// Which forms of a header value are taken (K2).
    pub syntax: KeySyntax,
    /// What a request without a key gets (K6).
    pub need: KeyNeed,
    /// What a key must be beyond well-formed (K5).
    pub key_rules: KeyRules,
    /// The methods that keys apply to (K7).
    pub methods: Vec<Method>,
    /// What makes two requests the same operation (S2).
    pub operation: Operation,
    /// Whether the host counts too (S2).
    pub authority: Authority,
    /// How bodies are compared (F1, F2, F3).
    pub body: BodyMode,
    /// How query strings are compared (F5).
    pub query: Query,
    /// Headers that are compared (F3).
    pub headers: Vec<HeaderName>,
    /// The largest body that is compared, in bytes (F4).
    pub max_request_body: usize,
    /// How long a body may take to arrive (X6).
    pub body_timeout: Duration,
    /// The largest answer that is kept with its body, in bytes (P3).
    pub max_response_body: usize,
    /// How long an ending is kept (T1, T2).
    pub retention: Retention,
    /// How long an unknown record is kept at least (U3).
    pub horizon: Duration,
    /// The lease (L1).
    pub lease: Duration,
    /// How long the lease is renewed (L1).
    pub max_run: Duration,
    /// How long the client waits for the work; after that it is told that nobody knows, and the
    /// work goes on (O4). `None`: as long as it takes.
    pub timeout: Option<Duration>,
    /// What a request gets while another runs (C4).
    pub wait: Wait,
    /// What a request gets when nobody knows how the last one ended (U1). There is nobody here to
    /// [ask](OnUnknown::Ask): that holds, too.
    pub on_unknown: OnUnknown,
    /// What the final status says about the run (O1, O2).
    pub endings: Endings,
    /// Which headers of an answer are kept (P2).
    pub replay: ReplayHeaders,
    /// Whether the answer's body is kept (P2).
    pub store_body: StoreBody,
    /// What happens when the store is not reached (X1).
    pub store_down: StoreDown,
    /// The status of a mismatch, which profiles differ about (H).
    pub mismatch: StatusCode,
    pub(super) recipe: RecipeCell,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            mode: Mode::Protect,
            keys: vec![KeySource::Header(super::names::IDEMPOTENCY_KEY)],
            syntax: KeySyntax::Lenient,
            need: KeyNeed::Optional,
            key_rules: KeyRules::default(),
            methods: vec![Method::POST, Method::PATCH],
            operation: Operation::Path,
            authority: Authority::Ignored,
            body: BodyMode::Raw,
            query: Query::Raw,
            headers: Vec::new(),
            max_request_body: MIB,
            body_timeout: Duration::from_secs(30),
            max_response_body: MIB,
            retention: Retention::keep(24 * HOUR),
            horizon: 90 * 24 * HOUR,
            lease: Duration::from_secs(30),
            max_run: Duration::from_secs(15 * 60),
            timeout: None,
            wait: Wait::UpTo(Duration::from_secs(5)),
            on_unknown: OnUnknown::Hold,
            endings: Endings::default(),
            replay: ReplayHeaders::default(),
            store_body: StoreBody::Keep,
            store_down: StoreDown::Refuse,
            mismatch: StatusCode::UNPROCESSABLE_ENTITY,
            recipe: RecipeCell::default(),
        }
    }
}

impl Policy {
    /// For money (O2): the key is required, no 5xx is run again by itself, and keys stay refused
    /// for 30 days after their answer is gone.
    #[must_use]
    pub fn payment() -> Self {
        let retention = Retention::keep(24 * HOUR).with_tombstone(30 * 24 * HOUR);
        Self {
            need: KeyNeed::Required,
            retention,
            endings: Endings::default().with_class(5, StatusEnding::Unknown),
            ..Self::default()
        }
    }

    /// The conventions of Stripe's API: 400 for a reused key, and every 5xx is kept but those
    /// that say themselves that nobody knows.
    #[must_use]
    pub fn stripe() -> Self {
        Self {
            mismatch: StatusCode::BAD_REQUEST,
            endings: Endings::default().with_class(5, StatusEnding::Keep),
            ..Self::default()
        }
    }

    /// This policy with some fields changed.
    ///
    /// ```
    /// use oncekey::engine::Wait;
    /// use oncekey::http::Policy;
    ///
    /// let policy = Policy::payment().with(|policy| policy.wait = Wait::Reject);
    /// ```
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        // Other fields may be compared now.
        self.recipe = RecipeCell::default();
        self
    }

    /// How fingerprints are made under this policy (F1). Two policies that compare requests
    /// differently have different recipes.
    pub(super) fn recipe(&self, secret: &Secret) -> Recipe {
        let (known, recipe) = self
            .recipe
            .0
            .get_or_init(|| (secret.clone(), Recipe::new(secret, self.comparison().as_bytes())));
        if known == secret { *recipe } else { Recipe::new(secret, self.comparison().as_bytes()) }
    }

    /// What is compared, in words of its own: part of a stored format, so it never changes.
    fn comparison(&self) -> String {
        let mut text = match &self.body {
            BodyMode::Raw => String::from("raw"),
            BodyMode::Json(Selection { exclude, include }) => {
                let quoted = |list: &[String]| {
                    list.iter().map(|text| format!("{}:{text}", text.len())).collect::<String>()
                };
                format!("json exclude {} include {}", quoted(exclude), quoted(include))
            }
        };
        text.push_str(match self.query {
            Query::Raw => " query raw",
            Query::Sorted => " query sorted",
        });
        for name in &self.headers {
            text.push_str(" header ");
            text.push_str(name.as_str());
        }
        text
    }

    pub(super) fn applies_to(&self, method: &Method) -> bool {
        self.mode != Mode::Off && self.methods.contains(method)
    }
}

/// The recipe of a policy, made once. A copy makes its own, since its fields may be changed.
#[derive(Debug, Default)]
pub(super) struct RecipeCell(OnceLock<(Secret, Recipe)>);

impl Clone for RecipeCell {
    fn clone(&self) -> Self {
        Self::default()
    }
}

/// Whether keys count (A8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// Keys protect.
    Protect,
    /// Records and reports; never blocks and never replays.
    Observe,
    /// Keys are ignored.
    Off,
}

/// A place where a key may be (K1).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeySource {
    /// A request header.
    Header(HeaderName),
    /// A string in the JSON body, by pointer (RFC 6901).
    Body(String),
}

/// What a request without a key gets (K6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyNeed {
    /// It runs unprotected.
    Optional,
    /// It is refused.
    Required,
}

/// What a key must be beyond well-formed (K5).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyRules {
    /// The fewest bytes; 0 for no rule.
    pub min_length: usize,
    /// The form it must have.
    pub form: KeyForm,
    /// The oldest UUIDv7 that is taken, by the time in it.
    pub max_age: Option<Duration>,
    /// Words that are no key: what a client sends by mistake, such as `undefined`.
    pub refused: Vec<String>,
}

/// The form of a key (K5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyForm {
    /// Whatever is well-formed.
    #[default]
    Any,
    /// A UUID in its usual text form.
    Uuid,
}

/// What makes two requests the same operation (S2).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// Method and normalised path.
    Path,
    /// A name given to the route.
    Named(Arc<str>),
    /// The whole tenant: a key is good for one request anywhere, and another endpoint is a
    /// mismatch.
    Tenant,
}

/// Whether the host is part of the operation (S2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Authority {
    /// It is not.
    Ignored,
    /// It is.
    Counted,
}

/// How query strings are compared (F5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Query {
    /// Byte for byte.
    Raw,
    /// With their parameters in order.
    Sorted,
}

/// Whether an answer's body is kept (P2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreBody {
    /// Up to the limit.
    Keep,
    /// Never: a replay has status and headers.
    Omit,
}

/// What happens when the store is not reached before the claim (X1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreDown {
    /// Nothing runs.
    Refuse,
    /// The request runs unprotected and its answer says so. Never after a time-out, when it may
    /// be running already.
    InsecurePassThrough,
}

/// What a final status says about a run (O1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StatusEnding {
    /// The answer is the outcome.
    Keep,
    /// Running again is acceptable.
    Retry,
    /// Nothing happened.
    Release,
    /// Nobody knows.
    Unknown,
}

impl StatusEnding {
    /// The ending with this name: `keep`, `retry`, `release` or `unknown`.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "keep" => Some(Self::Keep),
            "retry" => Some(Self::Retry),
            "release" => Some(Self::Release),
            "unknown" => Some(Self::Unknown),
            _ => None,
        }
    }
}

/// What each final status says about the run (O1, O2).
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Endings {
    statuses: Vec<(u16, StatusEnding)>,
    classes: Vec<(u16, StatusEnding)>,
}

impl Endings {
    /// Sets the ending of one status.
    #[must_use]
    pub fn with_status(mut self, status: u16, ending: StatusEnding) -> Self {
        self.statuses.retain(|(known, _)| *known != status);
        self.statuses.push((status, ending));
        self
    }

    /// Sets the ending of a class of statuses: 4 for 4xx. What says itself that nobody knows
    /// stays unknown unless it is set by its own number.
    #[must_use]
    pub fn with_class(mut self, class: u16, ending: StatusEnding) -> Self {
        self.classes.retain(|(known, _)| *known != class);
        self.classes.push((class, ending));
        self
    }

    /// The ending that `status` stands for.
    #[must_use]
    pub fn of(&self, status: StatusCode) -> StatusEnding {
        let number = status.as_u16();
        let find = |table: &[(u16, StatusEnding)], wanted| {
            table.iter().find(|(known, _)| *known == wanted).map(|(_, ending)| *ending)
        };
        if let Some(ending) = find(&self.statuses, number) {
            return ending;
        }
        if matches!(number, 502 | 504 | 520 | 524) {
            return StatusEnding::Unknown;
        }
        if let Some(ending) = find(&self.classes, number / 100) {
            return ending;
        }
        match number {
            401 | 403 | 408 | 425 | 429 => StatusEnding::Release,
            200..=499 => StatusEnding::Keep,
            500..=599 => StatusEnding::Retry,
            // Of no class that anybody has defined.
            _ => StatusEnding::Unknown,
        }
    }
}

/// Which headers of an answer are kept beyond the rule's own lists (P2).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReplayHeaders {
    /// Kept although off by default. What must never be kept is not.
    pub allow: Vec<HeaderName>,
    /// Not kept.
    pub deny: Vec<HeaderName>,
}
